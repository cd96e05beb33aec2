// Runs an exported answer: Run.exe LIBRARY MODEL INPUT OUTPUT REQUESTS, with raw files of float32.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

static class Run
{
    static void Main(string[] given)
    {
        var env = OrtEnv.Instance();
        env.RegisterExecutionProviderLibrary("CollageEvo", given[0]);
        var devices = env.GetEpDevices().Where(device => device.EpName == "CollageEvo").ToList();
        var options = new SessionOptions();
        options.AppendExecutionProvider(env, devices, new Dictionary<string, string>());
        var session = new InferenceSession(given[1], options);

        var bytes = File.ReadAllBytes(given[2]);
        var values = new float[bytes.Length / 4];
        Buffer.BlockCopy(bytes, 0, values, 0, bytes.Length);
        var input = session.InputMetadata.First();
        var tensor = new DenseTensor<float>(values, input.Value.Dimensions);
        var feeds = new[] { NamedOnnxValue.CreateFromTensor(input.Key, tensor) };
        float[] made = null;
        for (int k = 0; k < int.Parse(given[4]); ++k)
            using (var outputs = session.Run(feeds)) made = outputs.First().AsEnumerable<float>().ToArray();
        bytes = new byte[made.Length * 4];
        Buffer.BlockCopy(made, 0, bytes, 0, bytes.Length);
        File.WriteAllBytes(given[3], bytes);
    }
}
