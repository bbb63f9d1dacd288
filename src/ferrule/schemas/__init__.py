"""JSON Schema: written from types, fitted to models, made strict, renamed and walked."""
