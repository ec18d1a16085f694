package ctl

import "time"

// SetPatience bounds how long the listener waits for a line, and for a client to read its answer.
func (l *Listener) SetPatience(d time.Duration) { l.patience = d }

// Unbound returns the error for a socket that cannot be created.
var Unbound = unbound

// Linked shortens a long path without /proc.
var Linked = linked
