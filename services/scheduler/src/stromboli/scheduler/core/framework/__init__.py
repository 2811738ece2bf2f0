"""One scheduling session: the model, the extension points and the statements that change it."""
