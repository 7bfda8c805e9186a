"""Who somebody is and what they may do: authentication, access control, certificates."""
