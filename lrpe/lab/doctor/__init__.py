"""What an installation has and lacks: the machinery of ``lrpe doctor``."""
