"""The report of a certification: one builder (`build`), and one writer for each format. Pure."""
