"""The front door: CLI verbs, the Textual App, theme, command palette."""
