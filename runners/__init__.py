"""Everything that acts on nodes or asks them something. Never loads Textual."""
