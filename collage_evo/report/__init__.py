"""Reports: tables, JSON, HTML, exported models."""
