"""From files to records, and back."""
