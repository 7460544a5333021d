"""Division of devices by tickets, shared by the mechanisms of Gandiva_fair's paper."""
