// Runs an exported answer: java Run LIBRARY MODEL INPUT OUTPUT REQUESTS, with raw files of float32.
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtSession;
import ai.onnxruntime.TensorInfo;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

class Run {
    public static void main(String[] given) throws Exception {
        var env = OrtEnvironment.getEnvironment();
        env.registerExecutionProviderLibrary("CollageEvo", given[0]);
        var devices = env.getEpDevices().stream().filter(device -> device.getEpName().equals("CollageEvo")).toList();
        var options = new OrtSession.SessionOptions();
        options.addExecutionProvider(devices, Map.of());
        var session = env.createSession(given[1], options);

        var bytes = Files.readAllBytes(Path.of(given[2]));
        var values = ByteBuffer.allocateDirect(bytes.length).order(ByteOrder.nativeOrder());
        values.put(bytes).rewind();
        var input = session.getInputInfo().values().iterator().next();
        var shape = ((TensorInfo) input.getInfo()).getShape();
        var tensor = OnnxTensor.createTensor(env, values.asFloatBuffer(), shape);
        byte[] made = null;
        for (int k = 0; k < Integer.parseInt(given[4]); ++k)
            try (var outputs = session.run(Map.of(input.getName(), tensor))) {
                var numbers = ((OnnxTensor) outputs.get(0)).getByteBuffer();
                made = new byte[numbers.remaining()];
                numbers.get(made);
            }
        Files.write(Path.of(given[3]), made);
    }
}
