package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// server is the API server as a process of this one.
type server struct {
	command    []string
	kubeconfig string
	process    *exec.Cmd
}

// start runs the server and waits until it is ready.
func (s *server) start(ctx context.Context) error {
	s.process = exec.Command(s.command[0], s.command[1:]...)
	s.process.Stderr = os.Stderr
	if err := s.process.Start(); err != nil {
		return err
	}
	if err := wait(ctx, 30*time.Second, func() bool { return s.ready(ctx) }); err != nil {
		return fmt.Errorf("the server is not ready: %w", err)
	}
	return nil
}

func (s *server) ready(ctx context.Context) bool {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return false
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false
	}
	_, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err == nil
}

// kill ends the server with SIGKILL.
func (s *server) kill() {
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
}
