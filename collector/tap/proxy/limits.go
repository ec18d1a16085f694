package proxy

import "time"

// limits bound what one client can take from the other clients and from the machine. They are
// constants, except in tests.
type limits struct {
	// Sessions limits the open sessions for POST /r. Calls limits the calls of a session, and
	// OpenCalls its calls at the same time.
	Sessions, Calls, OpenCalls int
	// BodyBytes limits a request body that is parsed. A larger body is forwarded without being
	// parsed, or refused in a session.
	BodyBytes int64
	// MemoryBytes limits the bodies in memory. While they exceed the limit, new bodies are forwarded
	// without being parsed, or refused in a session. ShareBytes limits the request bodies of one
	// session, so that a session cannot fill the memory.
	MemoryBytes, ShareBytes int64
	// PageBytes limits the body of a request that begins or ends a session.
	PageBytes int64
	// BodyTime limits the time until the request body of a session has arrived.
	BodyTime time.Duration
	// CancelTime limits the time to write to the client after its call was canceled.
	CancelTime time.Duration
}

func defaultLimits() limits {
	return limits{
		Sessions: 10_000, Calls: 10_000, OpenCalls: 128,
		BodyBytes: 16 << 20, MemoryBytes: 1 << 30, ShareBytes: 256 << 20, PageBytes: 1 << 20,
		BodyTime: time.Minute, CancelTime: time.Second,
	}
}
