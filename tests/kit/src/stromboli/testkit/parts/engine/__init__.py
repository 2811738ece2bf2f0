"""Docker's engine for tests of our images, and the images that they need and no registry gives."""
