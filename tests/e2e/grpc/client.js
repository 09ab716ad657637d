// Calls one method again and again and prints who answered: client.js MODULES TARGET.
const { createRequire } = require("node:module");
const modules = createRequire(process.argv[2] + "/");
const grpc = modules("@grpc/grpc-js");
modules("@grpc/grpc-js-xds").register();

const same = (bytes) => bytes;
const client = new grpc.Client(process.argv[3], grpc.credentials.createInsecure());
function call() {
  const deadline = new Date(Date.now() + 5000);
  client.makeUnaryRequest("/strait.test.Echo/Who", same, same, Buffer.alloc(0), { deadline }, (error, answer) => {
    console.log(error ? `failure ${error.code} ${error.details}` : `answer ${answer}`);
    setTimeout(call, 20);
  });
}
call();
