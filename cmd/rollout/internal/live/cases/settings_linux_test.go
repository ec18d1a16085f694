package cases_test

// Pool sets whether servers started from now on pool their PostgreSQL connections.
func (l *Letta) Pool(on bool) { l.cfg.Pool = on }

// Traces sets whether servers started from now on store the requests to the engine.
func (l *Letta) Traces(on bool) { l.cfg.NoTraces = !on }

// Env replaces the additional variables of servers started from now on.
func (l *Letta) Env(vars ...string) { l.cfg.Env = vars }
