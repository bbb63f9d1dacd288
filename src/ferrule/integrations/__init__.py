"""A toolset in the loops of other frameworks, a module a framework. See docs/integrations.md."""
