"""Array types of all tables."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

NO_INTS: IntArray = np.zeros(0, dtype=np.int64)
NO_INTS.flags.writeable = False
NO_FLOATS: FloatArray = np.zeros(0)
NO_FLOATS.flags.writeable = False
