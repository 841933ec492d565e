"""The paper's theory as code: definitions, laws, canonical form and what they decide."""
