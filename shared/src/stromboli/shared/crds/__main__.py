"""`python -m stromboli.shared.crds`: writes the definitions anew after an edit of `source/`."""

from stromboli.shared.crds import compose

if __name__ == "__main__":
    compose.write()
