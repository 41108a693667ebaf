"""One file per screen; the panels that they share live in screens/widgets/."""
