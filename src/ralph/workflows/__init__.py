"""Pure rules, one package a workflow: state in, decision out. No input or output, no clock."""
