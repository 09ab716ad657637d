// Calls one method again and again and prints who answered (client TARGET), or answers every call with a name
// (server NAME ADDRESS).
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	credentials "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
)

// The names of codes that tests look for, as other libraries write them.
var names = map[codes.Code]string{
	codes.PermissionDenied: "PERMISSION_DENIED",
	codes.Unavailable:      "UNAVAILABLE",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED",
}

// raw passes messages on as they are.
type raw struct{}

func (raw) Name() string                       { return "raw" }
func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }
func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func client(target string) error {
	creds, err := credentials.NewClientCredentials(credentials.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		var asked, answer []byte
		err := conn.Invoke(ctx, "/strait.test.Echo/Who", &asked, &answer, grpc.ForceCodec(raw{}))
		cancel()
		if err != nil {
			refused := status.Convert(err)
			fmt.Println("failure", names[refused.Code()], refused.Message())
		} else {
			fmt.Println("answer", string(answer))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func server(name, address string) error {
	// Without mutual TLS the zone says so, and this is what is left.
	creds, err := credentials.NewServerCredentials(credentials.ServerOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		return err
	}
	server, err := xds.NewGRPCServer(grpc.Creds(creds), grpc.ForceServerCodec(raw{}))
	if err != nil {
		return err
	}
	who := func(_ any, ctx context.Context, read func(any) error, wrap grpc.UnaryServerInterceptor) (any, error) {
		var asked []byte
		if err := read(&asked); err != nil {
			return nil, err
		}
		answer := []byte(name)
		handler := func(context.Context, any) (any, error) { return &answer, nil }
		// What the routes say, permissions among it, is an interceptor.
		if wrap == nil {
			return handler(ctx, &asked)
		}
		return wrap(ctx, &asked, &grpc.UnaryServerInfo{FullMethod: "/strait.test.Echo/Who"}, handler)
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "strait.test.Echo",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Who", Handler: who}},
	}, struct{}{})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return server.Serve(listener)
}

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "client":
		log.Fatal(client(os.Args[2]))
	case len(os.Args) == 4 && os.Args[1] == "server":
		log.Fatal(server(os.Args[2], os.Args[3]))
	default:
		log.Fatal("client TARGET, or server NAME ADDRESS")
	}
}
