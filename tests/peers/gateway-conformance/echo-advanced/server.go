package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// How long a connection may take to send the head of a request.
const headTimeout = 10 * time.Second

// ports is a flag that may be given several times.
type ports []int

func (p *ports) String() string { return fmt.Sprint(*p) }

func (p *ports) Set(text string) error {
	port, err := strconv.ParseUint(text, 10, 16)
	*p = append(*p, int(port))
	return err
}

// options are the flags of the server.
type options struct {
	// HTTP/1.1, and HTTP/2 by prior knowledge.
	http ports
	// Those of `http` that serve TLS.
	tls ports
	// The same as `http`: what serves HTTP/2 also serves gRPC.
	grpc ports
	// What arrives is sent back.
	tcp ports
	// The certificate of `tls`. Where the file does not exist, one is made.
	certificate, key string
}

func parse(arguments []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("echo-advanced", flag.ContinueOnError)
	flags.Var(&o.http, "port", "HTTP")
	flags.Var(&o.tls, "tls", "which of the ports serve TLS")
	flags.Var(&o.grpc, "grpc", "gRPC")
	flags.Var(&o.tcp, "tcp", "TCP")
	flags.StringVar(&o.certificate, "crt", "", "certificate")
	flags.StringVar(&o.key, "key", "", "private key")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	// Pods of the suite without arguments declare these ports.
	if len(o.http)+len(o.grpc)+len(o.tcp) == 0 {
		o.http, o.grpc, o.tcp = ports{8080}, ports{7070}, ports{9090}
	}
	return o, nil
}

// serve runs the server until a listener fails.
func serve(arguments []string, _ io.Writer) error {
	o, err := parse(arguments)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for _, port := range slices.Concat(o.http, o.grpc, o.tcp) {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(o.tcp, port):
			go func() { failed <- serveTCP(listener) }()
		case slices.Contains(o.tls, port):
			certificate, err := o.load()
			if err != nil {
				return err
			}
			go func() { failed <- serveTLS(listener, certificate) }()
		default:
			go func() { failed <- serveHTTP(listener) }()
		}
		log.Printf("listening port=%d", port)
	}
	return <-failed
}

func (o options) load() (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.certificate, o.key)
	if o.certificate == "" || errors.Is(err, os.ErrNotExist) {
		return selfSigned()
	}
	return pair, err
}

func serveHTTP(listener net.Listener) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Handler: http.HandlerFunc(handle), Protocols: protocols, ReadHeaderTimeout: headTimeout}
	return server.Serve(listener)
}

func serveTLS(listener net.Listener, certificate tls.Certificate) error {
	configuration := &tls.Config{Certificates: []tls.Certificate{certificate}}
	server := http.Server{Handler: http.HandlerFunc(handle), TLSConfig: configuration, ReadHeaderTimeout: headTimeout}
	return server.ServeTLS(listener, "", "")
}

func serveTCP(listener net.Listener) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			_, _ = io.Copy(connection, connection)
		}()
	}
}

// handle answers a request, of gRPC or not, with its description.
func handle(writer http.ResponseWriter, request *http.Request) {
	text := describe(request)
	if !strings.HasPrefix(request.Header.Get("Content-Type"), grpcType) {
		writer.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(writer, text)
		return
	}
	_, _ = io.Copy(io.Discard, request.Body)
	writer.Header().Set("Content-Type", grpcType)
	writer.Header().Set("Trailer", grpcStatus)
	_, _ = writer.Write(frame(text))
	writer.Header().Set(grpcStatus, "0")
}

func describe(request *http.Request) string {
	hostname, _ := os.Hostname()
	var text strings.Builder
	fmt.Fprintf(&text, "Hostname=%s\nHost=%s\nURL=%s\nMethod=%s\nProto=%s\n", hostname, request.Host, request.RequestURI, request.Method, request.Proto)
	printHeaders(&text, "RequestHeader", request.Header)
	return text.String()
}

func printHeaders(out io.Writer, key string, headers http.Header) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			fmt.Fprintf(out, "%s=%s:%s\n", key, name, value)
		}
	}
}
