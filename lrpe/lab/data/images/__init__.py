"""Images in class folders, their augmentation, and digits."""
