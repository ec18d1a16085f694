// Package durable makes changes to a folder survive a power cut.
//
// [os.File.Sync] makes only the content of a file durable. The name of the file belongs to its
// folder. After a create, rename, link or remove, the folder must be synced too. Otherwise a power
// cut can undo the change.
package durable

import (
	"errors"
	"os"
)

// SyncDir makes the names in a folder durable. It blocks until they are on disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
