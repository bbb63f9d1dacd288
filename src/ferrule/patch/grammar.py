"""The patch format as shown to the model: the grammar of the freeform tool, the prose of the function form."""

GRAMMAR = """\
start: begin file+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

file: new_file | gone_file | changed_file
new_file: "*** Add File: " path LF new_line+
gone_file: "*** Delete File: " path LF
changed_file: "*** Update File: " path LF move? body?

path: /(.+)/
new_line: "+" /(.*)/ LF -> line

move: "*** Move to: " path LF
body: (anchor | signed_line)+ last?
anchor: ("@@" | "@@ " /(.+)/) LF
signed_line: ("+" | "-" | " ") /(.*)/ LF
last: "*** End of File" LF

%import common.LF
"""
"""Lark. The language is the one models were trained on; rule names and layout are Ferrule's."""

FORMAT_DESCRIPTION = """\
Create, change, move and delete files with one patch. The patch is plain text in this form:

*** Begin Patch
*** Add File: docs/hello.txt
+First line of a new file
+Second line
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
     name = ask()
-    print("Hi")
+    print("Hello", name)
     return name
*** Delete File: old.txt
*** End Patch

- The first line is `*** Begin Patch`, the last `*** End Patch`; between them any number of files.
- `*** Add File: PATH`: every line of the new file starts with `+`; an empty line is a bare `+`.
- `*** Delete File: PATH`: nothing follows.
- `*** Update File: PATH`, then `*** Move to: NEWPATH` if it is to be renamed, then one or more hunks.
- A hunk starts with `@@`. Its lines start with a space (stays), `-` (goes) or `+` (comes). Copy the lines that stay or
  go exactly from the file, without line numbers.
- Give about 3 unchanged lines before and after each change. Do not repeat lines between two near changes.
- When these lines stand in the file more than once, name an earlier line after `@@ `, whole: `@@ class Shop`. Several
  `@@` lines nest: first the class, then the method.
- Hunks of one file are in file order. Lines that are only added go right after the `@@ ` line, or to the end of the
  file after a bare `@@`.
- `*** End of File` after a hunk says that its last line is the last line of the file.
- Paths are relative to the working directory, never absolute.
- It is all or nothing: if one hunk does not fit, no file is changed.
"""
"""For the JSON function form and for prompts."""
