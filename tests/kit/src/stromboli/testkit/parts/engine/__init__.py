"""Docker's engine for tests of our images, and the images that these tests need, built without a
registry."""
