"""One response of the Responses API: read from a request, run against any model, told as events; without HTTP."""
