"""Sends what a run contains to an experiment tracker."""
