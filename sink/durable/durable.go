// Package durable makes changes to a folder survive a power failure.
//
// [os.File.Sync] makes only the content of a file durable. The name of the file is part of its
// folder. After a file is created, renamed, linked or removed, the folder must be synced too.
// Otherwise a power failure can undo the change.
package durable

import (
	"errors"
	"os"
)

// SyncDir makes the names in a folder durable. It blocks until the names are on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
