"""From bars and questions to tokens: one builder for training, calibration and serving."""
