// Package view shows a run in a browser: the report, the list of all samples, and each sample with
// its conversation and its tokens.
//
//	runs.Run ──► Open ──► View ──► Serve   the page on 127.0.0.1, and its data on request
//	                        └────► Write   one file with the report and at most 200 samples
//
// When a View opens a run, it reads only facts of the rows and keeps them in columns, in about 150
// bytes per sample. It reads the tokens of a sample when the page requests them. The page gets the
// columns of all samples, and filters and sorts them itself. Package web contains the page.
package view
