package proxy

import "time"

// limits bound what one client can take from the other clients, from an engine and from the machine.
// They are constants, except in tests.
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
	// HoldHead is how long the head of a stream is held back while the engine works on a whole answer.
	// Until then, an error of the engine reaches the client with its status. KeepAlive is the time
	// between two comments that keep the client waiting afterwards.
	HoldHead, KeepAlive time.Duration
	// TrustTime is how long an ability is not in doubt after it was found, because a client can cause an
	// answer that raises a doubt with every call.
	TrustTime time.Duration
	// ListTime is how long an engine's list of models is used. It also limits the time to read it.
	ListTime time.Duration
}

func defaultLimits() limits {
	return limits{
		Sessions: 10_000, Calls: 10_000, OpenCalls: 128,
		BodyBytes: 16 << 20, MemoryBytes: 1 << 30, ShareBytes: 256 << 20, PageBytes: 1 << 20,
		BodyTime: time.Minute, CancelTime: time.Second,
		HoldHead: time.Second, KeepAlive: 3 * time.Second, TrustTime: 10 * time.Second, ListTime: 5 * time.Second,
	}
}
