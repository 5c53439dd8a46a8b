"""Builds and checks a release: ``make release``. What a maintainer does by hand is in docs/contributing/release.md."""
