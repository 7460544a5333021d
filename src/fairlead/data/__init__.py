"""Tables that come with Fairlead; README.md beside this file says where each is from."""
