"""Probes: generated sequences that each need one ability, such as counting modulo 2 or reading by distance."""
