"""The family of encodings: W_s = Pᴴ Λ^(s) P."""
