"""From files to what twinrail works with: captured output to rows and verdicts, launch scripts to a deployment."""
