"""Whether a ready distribution may answer: decision points, distribution, gate, calibration, freshness."""
