"""Timeline: the devices that leases held and the shares of tenants, kept by the hour."""
