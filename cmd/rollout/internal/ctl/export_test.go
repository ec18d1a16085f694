package ctl

import "time"

// SetPatience bounds how long the listener waits for a line, and for a client that does not
// take its answer.
func (l *Listener) SetPatience(d time.Duration) { l.patience = d }

// Unbound is the error of a socket that cannot be made.
var Unbound = unbound

// Linked is how a long path is shortened where there is no /proc.
var Linked = linked
