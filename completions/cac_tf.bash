# SPDX-License-Identifier: Apache-2.0
# Written by tools/completion.py.

# Completes the flags of cac_tf's binaries in bash and zsh:
#     source completions/cac_tf.bash

_cac_tf_flags() {
    case $1 in
    cac-train) echo '--dataset= --data_dir= --known_classes= --known_share= --unknown_classes= --negative_classes= --split_family= --trial= --labels= --label_column= --split_column= --input_columns= --image_size= --interpolation= --stream --nostream --strict --nostrict --split_seed= --test_fraction= --validation_fraction= --validation_split= --network= --weights= --views= --fine_tune= --dropout= --method= --seed= --evaluate_every= --precision= --preset= --algorithm= --schedule= --epochs= --learning_rate= --second_stage_epochs= --second_stage_learning_rate= --until_converged --nountil_converged --patience= --batch_size= --momentum= --weight_decay= --scale= --flip= --rotation= --score= --tta= --scores= --true_positive_rate= --maximize= --unknown_share= --config= --output_dir= --dump_arrays= --devices= --coordinator= --num_processes= --process_id= --tensorboard --notensorboard --overwrite --nooverwrite --magnitude= --match_weight= --decoder_epochs= --decoder_learning_rate= --decoder_batch_size= --decoder_width= --threshold= --anchor_weight= --center_weight= --reconstruction_weight= --latent_channels= --gan_epochs= --gan_learning_rate= --gan_batch_size= --gan_width= --gan_dropout= --adversarial_weight= --gradient_penalty= --penalty_norm= --generated_unknowns= --generation_mode= --unknown_class_epochs= --unknown_class_learning_rate= --generator= --largest_known_probability= --symmetry_weight= --auto_encoder_epochs= --auto_encoder_learning_rate= --auto_encoder_batch_size= --auto_encoder_latents= --auto_encoder_width= --feature_length= --length_weight= --search_steps= --search_speed= --distance_weight= --latent_distance= --search_step= --help --help= --verbosity= --version' ;;
    cac-evaluate) echo '--dataset= --data_dir= --known_classes= --known_share= --unknown_classes= --negative_classes= --split_family= --trial= --labels= --label_column= --split_column= --input_columns= --image_size= --interpolation= --stream --nostream --strict --nostrict --split_seed= --test_fraction= --validation_fraction= --validation_split= --recenter --norecenter --score= --tta= --scores= --true_positive_rate= --threshold= --unknown_data= --model= --output_dir= --overwrite --nooverwrite --help --help= --verbosity= --version' ;;
    cac-benchmark) echo '--datasets= --methods= --table= --figure= --sweep= --released_weights= --trials= --split_family= --output_dir= --train_flags= --scores= --dry_run --nodry_run --help --help= --verbosity= --version' ;;
    cac-export) echo '--model= --output_dir= --version= --format= --allow_uncalibrated --noallow_uncalibrated --threshold= --name= --batch_sizes= --max_image_pixels= --quantize= --help --help= --verbosity= --version' ;;
    cac-predict) echo '--model= --threshold= --false_discovery_rate= --output= --format= --files_per_part= --shard= --image_column= --key_column= --copy_to= --group_unknown= --runner= --beam_options= --help --help= --verbosity= --version' ;;
    cac-monitor) echo '--model= --state= --false_alarm_rate= --prometheus= --merge --nomerge --help --help= --verbosity= --version' ;;
    cac-enroll) echo '--model= --add= --remove= --merge= --rename= --output_dir= --true_positive_rate= --accept_known --noaccept_known --known= --image_column= --dry_run --nodry_run --help --help= --verbosity= --version' ;;
    cac-demo) echo '--model= --host= --port= --help --help= --verbosity= --version' ;;
    cac-import-weights) echo '--dataset= --data_dir= --known_classes= --known_share= --unknown_classes= --negative_classes= --split_family= --trial= --labels= --label_column= --split_column= --input_columns= --image_size= --interpolation= --stream --nostream --strict --nostrict --split_seed= --test_fraction= --validation_fraction= --validation_split= --checkpoint= --output_dir= --mean= --std= --overwrite --nooverwrite --help --help= --verbosity= --version' ;;
    cac-report) echo '--compare= --output= --help --help= --verbosity= --version' ;;
    esac
}

# What a flag takes: "one" or a "list" of some words. Others take any text.
_cac_tf_values() {
    case "$1 $2" in
    "cac-train --dataset") echo 'one mnist svhn cifar10 cifar+10 cifar+50 tinyimagenet cifar10_vs_svhn cifar10_vs_cifar100 vehicles_animals digits folder records' ;;
    "cac-train --interpolation") echo 'one bilinear bicubic' ;;
    "cac-train --validation_split") echo 'one authors' ;;
    "cac-train --method") echo 'one anchor c2ae cac cac_learnt center center_learnt crosr cross_entropy entropic_open_set g_openmax gfror objectosphere one_vs_all osrci tuplet tuplet_learnt two_heads' ;;
    "cac-train --score") echo 'one class_z_score energy entropy gamma gen knn latent_openmax mahalanobis max_logit max_softmax min_distance min_reconstruction_error nnguide objectosphere openmax openmax_log_sum_exp relative_mahalanobis she two_heads unknown_class unknown_class_openmax vim' ;;
    "cac-train --tta") echo 'one none flip' ;;
    "cac-train --scores") echo 'list all class_z_score energy entropy gamma gen knn latent_openmax mahalanobis max_logit max_softmax min_distance min_reconstruction_error nnguide objectosphere openmax openmax_log_sum_exp relative_mahalanobis she two_heads unknown_class unknown_class_openmax vim' ;;
    "cac-train --maximize") echo 'one macro_f1 balanced_accuracy' ;;
    "cac-train --precision") echo 'one float32 mixed_bfloat16 mixed_float16' ;;
    "cac-train --preset") echo 'one fair fast paper' ;;
    "cac-train --algorithm") echo 'one sgd adam' ;;
    "cac-train --schedule") echo 'one cosine two_stage' ;;
    "cac-train --threshold") echo 'one accepted_share extreme_values' ;;
    "cac-train --penalty_norm") echo 'one image pixel' ;;
    "cac-train --generation_mode") echo 'one evaluation training' ;;
    "cac-train --generator") echo 'one interpolation conditional' ;;
    "cac-train --latent_distance") echo 'one squared means' ;;
    "cac-train --search_step") echo 'one image batch' ;;
    "cac-train --help") echo 'one all data network training score run method' ;;
    "cac-evaluate --dataset") echo 'one mnist svhn cifar10 cifar+10 cifar+50 tinyimagenet cifar10_vs_svhn cifar10_vs_cifar100 vehicles_animals digits folder records' ;;
    "cac-evaluate --interpolation") echo 'one bilinear bicubic' ;;
    "cac-evaluate --validation_split") echo 'one authors' ;;
    "cac-evaluate --score") echo 'one class_z_score energy entropy gamma gen knn latent_openmax mahalanobis max_logit max_softmax min_distance min_reconstruction_error nnguide objectosphere openmax openmax_log_sum_exp relative_mahalanobis she two_heads unknown_class unknown_class_openmax vim' ;;
    "cac-evaluate --tta") echo 'one none flip' ;;
    "cac-evaluate --scores") echo 'list all class_z_score energy entropy gamma gen knn latent_openmax mahalanobis max_logit max_softmax min_distance min_reconstruction_error nnguide objectosphere openmax openmax_log_sum_exp relative_mahalanobis she two_heads unknown_class unknown_class_openmax vim' ;;
    "cac-evaluate --help") echo 'one all data score run' ;;
    "cac-benchmark --datasets") echo 'list mnist svhn cifar10 cifar+10 cifar+50 tinyimagenet cifar10_vs_svhn cifar10_vs_cifar100 vehicles_animals digits folder records' ;;
    "cac-benchmark --methods") echo 'list anchor c2ae cac cac_learnt center center_learnt crosr cross_entropy entropic_open_set g_openmax gfror objectosphere one_vs_all osrci tuplet tuplet_learnt two_heads' ;;
    "cac-benchmark --table") echo 'one 1 2 3 4 5' ;;
    "cac-benchmark --figure") echo 'one 1 2 3 convergence classes' ;;
    "cac-benchmark --scores") echo 'list all class_z_score energy entropy gamma gen knn latent_openmax mahalanobis max_logit max_softmax min_distance min_reconstruction_error nnguide objectosphere openmax openmax_log_sum_exp relative_mahalanobis she two_heads unknown_class unknown_class_openmax vim' ;;
    "cac-benchmark --help") echo 'one all run' ;;
    "cac-export --format") echo 'one tf_serving litert onnx' ;;
    "cac-export --quantize") echo 'one dynamic_range' ;;
    "cac-export --help") echo 'one all run' ;;
    "cac-predict --format") echo 'one csv jsonl parquet' ;;
    "cac-predict --help") echo 'one all run' ;;
    "cac-monitor --help") echo 'one all run' ;;
    "cac-enroll --help") echo 'one all run' ;;
    "cac-demo --help") echo 'one all run' ;;
    "cac-import-weights --dataset") echo 'one mnist svhn cifar10 cifar+10 cifar+50 tinyimagenet cifar10_vs_svhn cifar10_vs_cifar100 vehicles_animals digits folder records' ;;
    "cac-import-weights --interpolation") echo 'one bilinear bicubic' ;;
    "cac-import-weights --validation_split") echo 'one authors' ;;
    "cac-import-weights --help") echo 'one all data run' ;;
    "cac-report --help") echo 'one all run' ;;
    esac
}

_cac_tf() {
    local command=${1##*/} current=${COMP_WORDS[COMP_CWORD]}
    local before=${COMP_WORDS[COMP_CWORD - 1]} flag="" start="" values=""
    # Bash takes --flag=value apart into three words, zsh does not.
    if [[ $current == --*=* ]]; then
        flag=${current%%=*}
        start=$flag=
        current=${current#*=}
    elif [[ $current == = ]]; then
        flag=$before
        current=""
    elif [[ $before == = ]]; then
        flag=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $before == --* && $current != -* ]]; then
        flag=$before
    fi
    if [[ -n $flag ]]; then
        values=$(_cac_tf_values "$command" "$flag")
        if [[ $values == list* && $current == *,* ]]; then
            start=$start${current%,*},
            current=${current##*,}
        fi
        values=${values#* }
    elif [[ $current == -* ]]; then
        values=$(_cac_tf_flags "$command")
    fi
    COMPREPLY=($(compgen -P "$start" -W "$values" -- "$current"))
    # After --flag= comes a value.
    if [[ ${COMPREPLY[*]} == --*= && -z ${ZSH_VERSION-} ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

# Where there is nothing to choose from, names of files are completed.
if [[ -n ${ZSH_VERSION-} ]]; then
    type compdef >/dev/null 2>&1 || { autoload -U compinit && compinit; }
    autoload -U bashcompinit && bashcompinit
    complete -o nospace -o default -F _cac_tf cac-train cac-evaluate cac-benchmark cac-export cac-predict cac-monitor cac-enroll cac-demo cac-import-weights cac-report
else
    complete -o default -F _cac_tf cac-train cac-evaluate cac-benchmark cac-export cac-predict cac-monitor cac-enroll cac-demo cac-import-weights cac-report
fi
