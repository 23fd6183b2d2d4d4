"""Where models come from: folders, GGUF files, hub ids, packages; and what their files are worth."""
