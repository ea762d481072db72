"""One function per use case, for every interface. They return values or raise RalphError, and never print."""
