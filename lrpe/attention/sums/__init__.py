"""Σ_s w_ts (q_t·k_s) v_s in linear time: one description of the problem, and the ways to compute it."""
