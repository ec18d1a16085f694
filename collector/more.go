package collector

import "context"

// more sends the samples of the tasks that come while the run goes on.
func (f *feed) more(ctx context.Context) error {
	if f.c.cfg.More == nil {
		return nil
	}
	f.tasks = f.c.cfg.More(ctx)
	return f.all(ctx)
}
