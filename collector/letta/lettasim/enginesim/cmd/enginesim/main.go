// Command enginesim serves a scripted engine (package enginesim) until it is interrupted.
//
//	enginesim --tokenizer DIR --log calls.jsonl --listen 127.0.0.1:30000
//
// Its first line of output is the address that it serves at.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

func main() {
	if err := run(); err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("enginesim", "error", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:30000", "listen address; port 0 selects a free port")
	tokenizer := flag.String("tokenizer", "", "folder with tokenizer.json and a chat template")
	log := flag.String("log", "", "file to append each call to, as JSON lines")
	scripts := flag.String("scripts", "", "JSON file with more scripts: {\"NAME\": {\"replies\": [{\"text\": …}]}}")
	model := flag.String("model", "", "id of the model; the folder of the tokenizer, which Letta reads under this name")
	length := flag.Int("max-model-len", 32768, "context of the model in tokens")
	version := flag.String("weight-version", "default", "weight version at the start")
	byMarker := flag.Bool("by-marker", false, "sample by the marker and the number of the call alone, whatever else the prompt holds")
	attached := flag.Bool("attached", false, "end with standard input, as a test's child that must not outlive it")
	flag.Parse()

	cfg := enginesim.Config{Model: cmp.Or(*model, *tokenizer), MaxModelLen: *length, Version: *version, ByMarker: *byMarker}
	if err := loadModel(&cfg, *tokenizer); err != nil {
		return err
	}
	if *scripts != "" {
		file, err := os.Open(*scripts)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // it is only read
		if cfg.Scripts, err = enginesim.ReadScripts(file); err != nil {
			return err
		}
	}
	if *log != "" {
		file, err := os.OpenFile(*log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // each call was written before its answer
		cfg.Log = file
	}
	engine, err := enginesim.New(cfg)
	if err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	ended, end := context.WithCancel(ctx)
	defer end()
	if *attached {
		go func() { // it ends with the process at the latest
			_, _ = io.Copy(io.Discard, os.Stdin)
			end()
		}()
	}
	server := &http.Server{Handler: engine, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ended, func() { _ = server.Close() })
	if err := server.Serve(listener); ended.Err() == nil {
		return err
	}
	return nil
}

// loadModel loads the tokenizer and the chat template of a folder; none without one.
func loadModel(cfg *enginesim.Config, dir string) error {
	if dir == "" {
		return nil
	}
	files := os.DirFS(dir)
	var err error
	if cfg.Tokenizer, err = bpe.Load(files, bpe.Options{}); err != nil {
		return err
	}
	templates, err := chat.Load(files, chat.Options{})
	if err != nil {
		return err
	}
	cfg.Template = templates.For(true)
	return nil
}
