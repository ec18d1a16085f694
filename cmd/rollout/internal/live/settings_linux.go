package live

// Pool says whether servers that are started from now on keep their connections to PostgreSQL.
func (l *Letta) Pool(on bool) { l.cfg.Pool = on }

// Traces says whether servers that are started from now on store the requests to the engine.
func (l *Letta) Traces(on bool) { l.cfg.NoTraces = !on }

// Env replaces the further variables of servers that are started from now on.
func (l *Letta) Env(vars ...string) { l.cfg.Env = vars }
