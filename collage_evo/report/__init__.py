"""What a person sees: tables, JSON, HTML, exported models."""
