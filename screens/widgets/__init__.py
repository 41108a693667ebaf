"""Panels shared by the screens, drawn with Textual's Line API."""
