"""Results: tables, pictures, warnings, exported models, and predictions."""
