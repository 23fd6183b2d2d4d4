"""Series of bars, their statistics and the right words: what training and calibration share."""
